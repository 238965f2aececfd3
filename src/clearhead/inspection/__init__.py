"""A model at work in, what every head looked at out: records, measures, pictures."""
