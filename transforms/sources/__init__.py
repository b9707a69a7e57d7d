"""Sources: what each input format lists, as references to images. Imports no Beam."""
