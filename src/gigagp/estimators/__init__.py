"""The scikit-learn classes: parameters, validation, and the calls that fit and predict."""
