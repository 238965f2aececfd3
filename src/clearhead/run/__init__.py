"""The composition root, the only room that sees everything: settings in, a trained model or a translation out."""
