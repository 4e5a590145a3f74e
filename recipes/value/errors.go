package value

import "errors"

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrChanged is returned if the value differs from the value that should be replaced. Nothing
	// was changed.
	ErrChanged = errors.New("value: changed by another client")
	// ErrOverflow is returned if the result does not fit the type of a [Counter]. Nothing was changed.
	ErrOverflow = errors.New("value: the counter overflows")
	// ErrVersion is returned if the version of the znode is -1, which ZooKeeper cannot compare.
	// This package never leaves a znode at this version; another program has, after 2^32 - 1
	// writes. Nothing was changed. If that program, or an operator, writes the znode again,
	// changes succeed again.
	ErrVersion = errors.New("value: the version of the znode is -1, which cannot be compared: write the znode again")
)
