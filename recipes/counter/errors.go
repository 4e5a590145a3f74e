package counter

import "errors"

// Errors of this package in addition to those of package recipes, to be tested with
// errors.Is.
var (
	// ErrChanged is returned if the value differs from the value that should be replaced. Nothing
	// was changed.
	ErrChanged = errors.New("counter: value was changed by another client")
	// ErrOverflow is returned if the result does not fit the type of the counter. Nothing
	// was changed.
	ErrOverflow = errors.New("counter: result overflows")
	// ErrFormat is returned if the data of the znode is not in the format of the counter or
	// the codec. Nothing was changed.
	ErrFormat = errors.New("counter: data has another format: use that of the program that has written it, or replace it with Set")
	// ErrVersion is returned if the version of the znode is -1, which ZooKeeper cannot compare.
	// This package never leaves a znode at this version; another program has, after 2^32 - 1
	// writes. Nothing was changed. If that program, or an operator, writes the znode again,
	// changes succeed again.
	ErrVersion = errors.New("counter: the version of the znode is -1, which cannot be compared: write the znode again")
)
