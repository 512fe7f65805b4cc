"""Every knob, declared once, with presets and the properties of other tools that set them. Pure."""
