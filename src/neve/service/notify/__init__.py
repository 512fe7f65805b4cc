"""Notifications: messages about failures, pauses, recoveries and days, and the channels that carry them."""
