// Package zookeeper starts the ZooKeeper server that benchmarks measure.
package zookeeper

import (
	"context"
	"errors"
	"os"
	"time"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // for machines without the Debian package
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// Start starts a server with this tick, which grants sessions of 2 to 20 ticks. It prefers a
// child process, so that there is no proxy between client and server, unless the environment
// variable [ensemble.BackendVariable] is set.
func Start(ctx context.Context, tick time.Duration) (*ensemble.Ensemble, error) {
	cfg := ensemble.Config{Servers: 1, TickTime: tick}
	if os.Getenv(ensemble.BackendVariable) != "" {
		return ensemble.Start(ctx, cfg)
	}
	cfg.Backend = ensemble.Process
	server, err := ensemble.Start(ctx, cfg)
	if err == nil || ctx.Err() != nil {
		return server, err
	}
	cfg.Backend = ensemble.Docker
	server, dockerErr := ensemble.Start(ctx, cfg)
	return server, errors.Join(err, dockerErr)
}
