package group

import "errors"

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrClosed is returned after Close was called.
	ErrClosed = errors.New("group: closed")
	// ErrTaken is the reason if a znode of another client, or of an earlier session, exists
	// at the path, or if another Persistent on the connection maintains it.
	ErrTaken = errors.New("group: znode belongs to another session")
	// ErrRevoked is the reason if a part was not released in time after it was assigned to
	// another member.
	ErrRevoked = errors.New("group: part was not released in time")
)
