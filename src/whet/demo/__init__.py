"""Two demos: `watch` adapts to its wearer in int8, `pictures` fine-tunes MobileNetV2."""
