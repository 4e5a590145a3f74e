package etcd

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-leaderelection/leaderelection"
)

// Errors of this package are those of package leaderelection, for errors.Is; these say in
// etcd's words what those say in ZooKeeper's.
var (
	errNilClient   = inWords(leaderelection.ErrNilConn, "etcd: client is nil")
	errClosed      = inWords(leaderelection.ErrConnClosed, "etcd: client is closed")
	errUnreachable = inWords(leaderelection.ErrUnreachable, "etcd does not answer")
	errNoElection  = inWords(leaderelection.ErrNoElection, "etcd: election node does not exist; create it or use WithCreateNode")
	errUnconfirmed = inWords(leaderelection.ErrUnconfirmed, "not confirmed by etcd")
	errDeleted     = inWords(leaderelection.ErrCandidateDeleted, "etcd: key of the candidate was deleted")
	errExpired     = inWords(leaderelection.ErrSessionExpired, "etcd: lease of the candidate has expired")
	errForeignData = inWords(leaderelection.ErrForeignData, "etcd: election node has a value of another application")
	errForeign     = inWords(leaderelection.ErrForeignChildren, "etcd: election node has keys that are not candidates")
)

// words is another text for an error.
type words struct {
	text string
	err  error
}

func inWords(err error, text string) error { return &words{text, err} }

func (w *words) Error() string { return w.text }

func (w *words) Unwrap() error { return w.err }

// refused reports whether the server has said no to a request, which then was not applied.
// Of any other error it is not known whether the request was, or will be.
func refused(err error) bool {
	switch code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		// Said by this side, it is about an answer that is too long.
		return errors.As(err, new(rpctypes.EtcdError))
	}
	return false
}

func code(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// final gives an error of a request as what a candidacy or a call ends with; nil if trying
// again may help.
func final(err error) error {
	switch {
	case errors.As(err, new(*endError)):
		return errors.Unwrap(err)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrAuthFailed), code(err) == codes.PermissionDenied:
		return fmt.Errorf("%w: %w", leaderelection.ErrPermission, err)
	case code(err) == codes.Unimplemented, errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrLeaseTTLTooLarge):
		return err
	}
	return nil
}

// endError is an error that trying again does not help against.
type endError struct{ err error }

func (e *endError) Error() string { return e.err.Error() }

func (e *endError) Unwrap() error { return e.err }
