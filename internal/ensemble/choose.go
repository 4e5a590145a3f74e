package ensemble

// Which backend runs the servers.

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Backend is a way of running servers.
type Backend int

const (
	// Auto is Docker where an engine answers and an image can be had, else
	// Process. The environment variable [BackendVariable] overrides it.
	Auto Backend = iota
	// Docker runs each server in a container.
	Docker
	// Process runs each server of Debian's zookeeper package as a child
	// process.
	Process
)

// BackendVariable names the environment variable that says, as "docker" or
// "process", what [Auto] stands for.
const BackendVariable = "LEADERELECTION_ZK_BACKEND"

func (b Backend) String() string {
	switch b {
	case Auto:
		return "auto"
	case Docker:
		return "docker"
	case Process:
		return "process"
	default:
		return fmt.Sprintf("Backend(%d)", int(b))
	}
}

// resolve replaces Auto by what the environment says, if it says something.
func (b Backend) resolve() (Backend, error) {
	if b != Auto {
		return b, nil
	}
	switch value := os.Getenv(BackendVariable); value {
	case "", "auto":
		return Auto, nil
	case "docker":
		return Docker, nil
	case "process":
		return Process, nil
	default:
		return Auto, fmt.Errorf("ensemble: %s=%q: want docker, process or auto", BackendVariable, value)
	}
}

// installHint is what a user can do when no backend works.
const installHint = "on Debian: apt-get install -y zookeeper openjdk-17-jre-headless, or run integrationtest/install.sh; elsewhere: start Docker"

func open(ctx context.Context, cfg Config) (backend, error) {
	kind, err := cfg.Backend.resolve()
	if err != nil {
		return nil, err
	}
	var dockerErr, processErr error
	if kind != Process {
		var b backend
		if b, dockerErr = openDockerBackend(ctx, cfg); dockerErr == nil {
			return b, nil
		}
		dockerErr = fmt.Errorf("docker: %w", dockerErr)
		// A caller that gave up is not a reason to try something else.
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ensemble: %w", dockerErr)
		}
	}
	if kind != Docker {
		var b backend
		if b, processErr = openProcessBackend(cfg); processErr == nil {
			return b, nil
		}
		processErr = fmt.Errorf("process: %w", processErr)
	}
	return nil, fmt.Errorf("ensemble: nothing can run ZooKeeper: %w\n%s",
		errors.Join(dockerErr, processErr), installHint)
}
