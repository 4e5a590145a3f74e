package counter

import "errors"

// ErrOverflow is returned if the result does not fit the type of the counter. Nothing was
// changed.
var ErrOverflow = errors.New("counter: result overflows")
