package mongodb

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety refuses servers that can lose acknowledged writes, unless their risks were
// accepted. What the server does not show to the user counts as the server's default, which
// is safe; a mongos shows neither.
func (s *Store) checkSafety(ctx context.Context) error {
	var found []changefeed.UnsafeSetting
	status, err := s.admin(ctx, bson.D{{Key: "serverStatus", Value: 1}, {Key: "metrics", Value: 0}, {Key: "wiredTiger", Value: 0}})
	if err != nil {
		return err
	}
	if engine, _ := status.Lookup("storageEngine", "name").StringValueOK(); engine == "inMemory" {
		found = append(found, changefeed.UnsafeSetting{
			Name: "storageEngine.name", Value: engine, Risk: changefeed.RiskRestart, Remedy: "use the engine wiredTiger on all members",
		})
	}
	config, err := s.admin(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}})
	if err != nil {
		return err
	}
	if journals, ok := config.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok && !journals {
		found = append(found, changefeed.UnsafeSetting{
			Name: "writeConcernMajorityJournalDefault", Value: "false", Risk: changefeed.RiskPowerLoss, Remedy: "set it to true by rs.reconfig()",
		})
	}
	return s.accepted.Check("mongodb's collection "+s.name(), found)
}

// notShown are the codes of a server that rejects a command for this user or for all users:
// Unauthorized, CommandNotFound, CommandNotSupported, NotImplemented, and the codes that Atlas
// and Amazon DocumentDB use for the same.
var notShown = []int{unauthorized, 59, 115, 238, 8000, 303}

// admin returns the primary's answer to a command, and nothing if the server does not show it.
func (s *Store) admin(ctx context.Context, command bson.D) (bson.Raw, error) {
	answer, err := s.coll.Database().Client().Database("admin").
		RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if slices.ContainsFunc(notShown, func(code int) bool { return hasCode(err, code) }) {
		return nil, nil
	}
	return answer, err
}
