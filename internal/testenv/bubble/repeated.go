package bubble

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Repeated calls f, which releases, acknowledges or closes something, until the servers have
// answered. Each call takes some time, so Repeated does not spin.
func Repeated(f func() error) error {
	err := f()
	for errors.Is(err, limit.ErrConfirm) {
		err = f()
	}
	return err
}
