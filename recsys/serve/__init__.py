"""What becomes of a trained model: saved weights, batch scoring, evaluation by slice, export, an HTTP service."""
