package migration_test

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/migration"
)

// A program that was elected in a database moves its election to ZooKeeper. This is the version that runs
// during the migration.
func ExampleNewCandidate() {
	lead := func(ctx context.Context, store changefeed.Store, conn *zk.Conn, report func(context.Context) error) error {
		candidate, err := migration.NewCandidate(ctx,
			func(context.Context) (leaderelection.Candidate, error) {
				return changefeed.NewElection(store)
			},
			func(context.Context) (leaderelection.Candidate, error) {
				return leaderelection.NewElection(conn, "/jobs/report", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
			})
		if err != nil {
			return err
		}
		return elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
			inDatabase, inZooKeeper := candidate.Leaderships(l)
			fmt.Println("tokens:", inDatabase.Token(), inZooKeeper.Token())
			return report(ctx)
		})
	}
	_ = lead
}
