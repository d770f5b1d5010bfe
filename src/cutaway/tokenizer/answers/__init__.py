"""What a model's answer says, told apart: reasoning, content, tool calls. What chat templates write, read again."""
