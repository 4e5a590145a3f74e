package counter

import "errors"

// The errors of this package besides those of package recipes, for errors.Is.
var (
	// ErrChanged: the value is not the one that was to be replaced. Nothing was
	// changed.
	ErrChanged = errors.New("counter: value has changed meanwhile")
	// ErrOverflow: the result does not fit the counter's type. Nothing was
	// changed.
	ErrOverflow = errors.New("counter: result does not fit")
	// ErrFormat: the znode's data are not those of such a value. Nothing was
	// changed.
	ErrFormat = errors.New("counter: data have another format")
	// ErrTooLarge: the value is larger than a server with default settings accepts,
	// which is a megabyte with everything around it. Nothing was sent.
	ErrTooLarge = errors.New("counter: larger than ZooKeeper accepts")
)
