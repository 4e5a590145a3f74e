package connection

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Explain returns err, with which an operation on conn has ended, with the reason why conn has no
// session, or the server that has not answered. It adds ErrHangs to zkerror.ErrConnClosed if
// that is the reason. It returns err unchanged if err is an answer of a server, or does not depend on
// the connection, or if conn is nil.
func Explain(conn *zk.Conn, err error) error {
	switch {
	case err == nil || conn == nil:
		return err
	case errors.Is(err, zkerror.ErrConnClosed):
		reason := RecordOf(conn).Failure()
		if errors.Is(reason, ErrHangs) && !errors.Is(err, ErrHangs) {
			return fmt.Errorf("%w: %w", err, reason)
		}
		return err
	case zkerror.CodeOf(err) != nil || errors.Is(err, zkerror.ErrInvalid):
		return err
	}
	if conn.State() != zk.StateHasSession {
		if failure := RecordOf(conn).Failure(); failure != nil {
			return fmt.Errorf("%w (%v)", err, failure) // not wrapped: it is not the failure of a request
		}
		if !errors.Is(err, zk.ErrNoServer) { // it says the same
			err = fmt.Errorf("%w (the connection has no session)", err)
		}
		return err
	}
	if errors.Is(err, zkerror.ErrUnreachable) {
		if address := server(context.Background(), conn); address != "" {
			return fmt.Errorf("%w (%s)", err, address)
		}
	}
	return err
}
