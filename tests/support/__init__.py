"""What tests of several folders share: builders of inputs, and slow oracles written apart from the code they judge."""
