"""The operations, a family in each file: functions of handles, which ``Tensor`` has as methods."""
