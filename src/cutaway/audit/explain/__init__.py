"""Explanations of an answer: why each token, where it looked, what the layers made of it, who computed it when."""
