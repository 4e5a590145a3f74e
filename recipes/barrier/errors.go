package barrier

import "errors"

// ErrLeft: the round was left. For errors.Is, as those of package recipes.
var ErrLeft = errors.New("barrier: left the round")
