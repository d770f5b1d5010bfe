"""How a vocabulary is made: corpus → words and their counts → pieces → ``tokenizer.json``."""
