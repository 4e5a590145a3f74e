package group

import "errors"

// ErrRevoked is the reason if a part was not released in time after it was assigned to another
// member.
var ErrRevoked = errors.New("group: part was not released in time")
