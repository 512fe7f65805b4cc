"""What is worth rewriting, and how: one small pure module for each strategy. `known` finds them by name."""
