package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/resign"
)

// These errors wrap errors of package leaderelection. Their own texts replace the texts of the wrapped errors,
// which use terms of ZooKeeper.
var (
	errNilClient   = withText(leaderelection.ErrInvalid, "invalid argument: the client of etcd is nil")
	errClosed      = withText(leaderelection.ErrConnClosed, "etcd: client is closed")
	errUnreachable = withText(leaderelection.ErrUnreachable, "etcd does not answer")
	errNoAnswer    = withText(context.DeadlineExceeded, "no answer")
	errNoElection  = withText(leaderelection.ErrNoElection, "etcd: election node does not exist; create it or use WithCreateNode")
	errUnconfirmed = withText(leaderelection.ErrUnconfirmed, "not confirmed by etcd")
	errDeleted     = withText(leaderelection.ErrDeleted, "etcd: key of the candidate was deleted")
	errDetached    = withText(leaderelection.ErrDeleted, "etcd: another client has written the candidate's key without its lease, which removes it from the election; use \"etcdctl put --ignore-lease\" to change a value")
	errExpired     = withText(leaderelection.ErrSessionExpired, "etcd: lease of the candidate has expired")
	errEndedEarly  = withText(leaderelection.ErrSessionExpired, "etcd: lease of the candidate has ended before its TTL: another client has revoked it, or etcd has lost data")
	errDataLost    = withText(leaderelection.ErrSessionExpired, "etcd has lost data: it was restored from a backup, or emptied")
	errForeignData = withText(resign.ErrForeignData, "etcd: election node has a value of another application")
	errForeign     = withText(leaderelection.ErrForeignChildren, "etcd: election node has keys that are not candidates")
)

// textError replaces the text of err, which errors.Is and errors.As still find.
type textError struct {
	text string
	err  error
}

func withText(err error, text string) error { return &textError{text, err} }

func (e *textError) Error() string { return e.text }

func (e *textError) Unwrap() error { return e.err }

// isRejected reports whether the server has rejected a request, so that the request was not
// applied. After any other error the request may have been applied, or may be applied later.
func isRejected(err error) bool {
	switch errorCode(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		// Decide by the type, and not by the code, because the client itself returns the same code if a response
		// is too long.
		return errors.As(err, new(rpctypes.EtcdError))
	}
	return false
}

func errorCode(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// permanentCause returns the error with which a call ends, or nil if a retry can succeed without a change by an
// operator. A candidate that has joined the queue retries in any case, unless the error is a permanentError.
func permanentCause(err error) error {
	switch {
	case errors.As(err, new(*permanentError)):
		return errors.Unwrap(err)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrAuthFailed), errorCode(err) == codes.PermissionDenied:
		return fmt.Errorf("%w: %w", leaderelection.ErrPermission, err)
	case errorCode(err) == codes.Unimplemented, errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrLeaseTTLTooLarge):
		return err
	}
	return nil
}

// permanentError is an error of this package after which a request must not be retried.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }
