package mongodb

import (
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

// useReplicaSet is the advice for a standalone server.
const useReplicaSet = "change streams need a replica set or a sharded cluster; start the server with --replSet and run rs.initiate(); one member is sufficient"

// adviceByCode contains advice on how to resolve permanent failures. The keys are the server's error codes.
var adviceByCode = map[int]string{
	unauthorized: "grant find, insert, update and changeStream on the collection, such as by the role readWrite",
	18:           "correct the user and password of the client",
	20:           useReplicaSet, // the server is standalone, and rejects a retryable write or a change stream
	40573:        useReplicaSet,
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

// meaningOf returns the error of package changefeed that corresponds to an error of the driver, or
// nil if there is none.
func meaningOf(err error) error {
	switch {
	case errors.Is(err, mongo.ErrClientDisconnected):
		return fmt.Errorf("%w: %w: the client was disconnected", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
	case hasCode(err, namespaceNotFound):
		return changefeed.ErrNoRecord
	}
	for code, advice := range adviceByCode {
		if hasCode(err, code) {
			return fmt.Errorf("%w: %s", changefeed.ErrUnsuitable, advice)
		}
	}
	return nil
}
