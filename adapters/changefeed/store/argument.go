package store

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection"
)

// ApplyOptions applies options to a store, for the constructor of the store. apply is the method of the option type O
// that applies one option.
func ApplyOptions[S, O any](store S, options []O, apply func(O, S) error) error {
	for i, o := range options {
		if any(o) == nil {
			return fmt.Errorf("%w: option %d is nil", leaderelection.ErrInvalid, i)
		}
		if err := apply(o, store); err != nil {
			if !errors.Is(err, leaderelection.ErrInvalid) {
				err = fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
			}
			return err
		}
	}
	return nil
}

// The limits of a quiet time. The maximum is longer than any heartbeat interval, but so short that its
// multiples do not overflow.
const (
	minQuiet = 10 * time.Millisecond
	maxQuiet = 48 * time.Hour
)

// SetQuietTime sets the quiet time of a store to d, for the option WithQuiet.
func SetQuietTime(quiet *time.Duration, d time.Duration) error {
	if d < minQuiet || d > maxQuiet {
		return fmt.Errorf("%w: WithQuiet(%v): must be between %v and %v", leaderelection.ErrInvalid, d, minQuiet, maxQuiet)
	}
	*quiet = d
	return nil
}

// SetServers sets suffix, which a store adds to its error messages, to the names of its servers. It implements the
// option WithServerNames.
func SetServers(suffix *string, names []string) error {
	text := strings.Join(names, ",")
	*suffix = " at " + text
	return CheckText("names of servers", text, Unlimited)
}

// Unlimited is the value of maxSize for CheckText if the size of the text is not limited.
const Unlimited = math.MaxInt

// CheckText checks a text argument with the given name, such as the key of a record. maxSize is its
// maximum size in bytes.
func CheckText(name, text string, maxSize int) error {
	switch {
	case text != "" && len(text) <= maxSize && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl):
		return nil
	case maxSize == Unlimited:
		return fmt.Errorf("%w: %s %q: must be UTF-8 text without control characters and not empty", leaderelection.ErrInvalid, name, text)
	}
	return fmt.Errorf("%w: %s %q: must be UTF-8 text without control characters and have from 1 to %d bytes", leaderelection.ErrInvalid, name, text, maxSize)
}
