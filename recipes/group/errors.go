package group

import "errors"

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrClosed: it was closed, or left, by its owner.
	ErrClosed = errors.New("group: closed")
	// ErrTaken: a znode of somebody else, or of an earlier session, is in the way.
	ErrTaken = errors.New("group: a znode of another session is there")
	// ErrRevoked: the part was wanted by another member and not given back in time.
	ErrRevoked = errors.New("group: part was not given back in time")
)
