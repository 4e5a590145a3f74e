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

// Start starts a server with the given tick. The server grants session timeouts of 2 to 20 ticks.
// Start prefers a child process, because a container is reached through a proxy, unless the
// environment variable [ensemble.BackendVariable] is set. The server syncs its data to the disk that
// contains the directory for temporary files: Start sets TMPDIR if it is not set, because servers of
// tests keep their data in memory otherwise.
func Start(ctx context.Context, tick time.Duration) (*ensemble.Ensemble, error) {
	if os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", os.TempDir()); err != nil {
			return nil, err
		}
	}
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
