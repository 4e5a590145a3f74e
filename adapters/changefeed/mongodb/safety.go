package mongodb

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety returns an error if the server can lose acknowledged writes and the user has not
// accepted the risk. If the client cannot read a setting, checkSafety assumes the server's
// default, which is safe. A mongos has none of these settings.
func (s *Store) checkSafety(ctx context.Context) error {
	var found []changefeed.UnsafeSetting
	status, err := s.runAdminCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}, {Key: "metrics", Value: 0}, {Key: "wiredTiger", Value: 0}})
	if err != nil {
		return err
	}
	if engine, _ := status.Lookup("storageEngine", "name").StringValueOK(); engine == "inMemory" {
		found = append(found, changefeed.UnsafeSetting{
			Name: "storageEngine.name", Value: engine, Risk: changefeed.RiskRestart, Remedy: "use the engine wiredTiger on all members",
		})
	}
	config, err := s.runAdminCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}})
	if err != nil {
		return err
	}
	if journals, ok := config.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok && !journals {
		found = append(found, changefeed.UnsafeSetting{
			Name: "writeConcernMajorityJournalDefault", Value: "false", Risk: changefeed.RiskPowerLoss, Remedy: "set it to true by rs.reconfig()",
		})
	}
	return s.accepted.Check("mongodb's collection "+s.collectionName(), found)
}

// unavailableCommand contains the error codes with which a server rejects a command for this user or for all users:
// Unauthorized, CommandNotFound, CommandNotSupported, NotImplemented, and the codes that Atlas and Amazon DocumentDB
// use instead.
var unavailableCommand = []int{unauthorized, 59, 115, 238, 8000, 303}

// runAdminCommand returns the primary's reply to a command, or an empty reply if the command is
// not available.
func (s *Store) runAdminCommand(ctx context.Context, command bson.D) (bson.Raw, error) {
	reply, err := s.coll.Database().Client().Database("admin").
		RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if slices.ContainsFunc(unavailableCommand, func(code int) bool { return hasCode(err, code) }) {
		return nil, nil
	}
	return reply, err
}
