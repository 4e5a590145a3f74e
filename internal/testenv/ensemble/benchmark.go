package ensemble

import (
	"context"
	"errors"
	"os"
	"time"
)

// StartBenchmarked starts the server that a benchmark measures, with the given tick. The server grants
// session timeouts of 2 to 20 ticks. StartBenchmarked prefers a child process, because a container is
// reached through a proxy, unless the environment variable [BackendVariable] is set. The server syncs its
// data to the disk that contains the directory for temporary files: StartBenchmarked sets TMPDIR if it is
// not set, because servers of tests keep their data in memory otherwise.
func StartBenchmarked(ctx context.Context, tick time.Duration) (*Ensemble, error) {
	if os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", os.TempDir()); err != nil {
			return nil, err
		}
	}
	cfg := Config{Servers: 1, TickTime: tick}
	if os.Getenv(BackendVariable) != "" {
		return Start(ctx, cfg)
	}
	cfg.Backend = Process
	server, err := Start(ctx, cfg)
	if err == nil || ctx.Err() != nil {
		return server, err
	}
	cfg.Backend = Docker
	server, dockerErr := Start(ctx, cfg)
	return server, errors.Join(err, dockerErr)
}
