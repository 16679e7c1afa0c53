"""Two demos: `watch` learns its wearer in int8, `pictures` has MobileNetV2 learn new pictures."""
