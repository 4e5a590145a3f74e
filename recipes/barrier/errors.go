package barrier

import "errors"

// ErrLeft is returned by [Round.Err] if the participant has left the round.
var ErrLeft = errors.New("barrier: left the round")
