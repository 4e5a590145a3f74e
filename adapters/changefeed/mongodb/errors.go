package mongodb

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

const (
	unauthorized      = 13
	namespaceNotFound = 26
)

// replicaSet is what the user can do about a standalone server.
const replicaSet = "change streams need a replica set or a sharded cluster; start the server with --replSet and run rs.initiate(); one member is sufficient"

// unsuitable are the server's codes that last until somebody changes the server or the client,
// and the change to make.
var unsuitable = map[int]string{
	unauthorized: "grant find, insert, update and changeStream on the collection, such as by the role readWrite",
	18:           "correct the user and password of the client",
	20:           replicaSet, // retryable writes and change streams on a standalone server
	40573:        replicaSet,
	73:           "use another collection",
	115:          "the server does not support change streams",
	166:          "use a collection, not a view",
	121:          "the validation rules of the collection reject the record; the package documentation describes the layout",
	10003:        "use a collection that is not capped",
}

func hasCode(err error, code int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(code)
}

// explain says what was tried when err happened, and wraps what there is to ask for. ctx
// is the caller's.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.feeds.Closed():
		return changefeed.ErrClosed
	case errors.Is(err, changefeed.ErrUnsuitable):
		return err
	case errors.Is(err, mongo.ErrClientDisconnected):
		return fmt.Errorf("%w: %w: mongodb: %s: the client was disconnected: %w", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed, what, err)
	}
	if done := ctx.Err(); done != nil && !errors.Is(err, done) {
		err = fmt.Errorf("%w: %w", done, err)
	}
	err = fmt.Errorf("mongodb: %s: %w", what, err)
	if hasCode(err, namespaceNotFound) {
		return fmt.Errorf("%w: %w", changefeed.ErrNoRecord, err)
	}
	for code, help := range unsuitable {
		if hasCode(err, code) {
			return fmt.Errorf("%w: %w: %s", changefeed.ErrUnsuitable, err, help)
		}
	}
	return err
}
