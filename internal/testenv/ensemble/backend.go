package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Backend is a way of running servers.
type Backend int

const (
	// Auto selects Docker if the program imports package integrationtest/docker, a Docker engine answers and an
	// image is available, and otherwise Process. The environment variable [BackendVariable] overrides this choice.
	Auto Backend = iota
	// Docker runs each server in a container. The program must import package integrationtest/docker.
	Docker
	// Process runs each server of Debian's zookeeper package as a child process.
	Process
)

// BackendVariable is the name of the environment variable that selects the backend if
// [Config.Backend] is [Auto]: "docker" or "process".
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

// resolve returns the backend that the environment variable selects if b is Auto, and b otherwise.
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

// installHint is the part of an error message that says how to install a backend.
const installHint = "on Debian: apt-get install -y zookeeper openjdk-17-jre-headless, or run integrationtest/install.sh; elsewhere: start Docker"

// openDocker opens the Docker backend. It is nil if the program does not import package integrationtest/docker.
var openDocker func(context.Context, Config) (Servers, error)

// RegisterDocker sets the function that opens the Docker backend. Only init functions may call it.
func RegisterDocker(open func(context.Context, Config) (Servers, error)) { openDocker = open }

var errNoDocker = errors.New("the program does not import integrationtest/docker")

func openBackend(ctx context.Context, cfg Config) (Servers, error) {
	kind, err := cfg.Backend.resolve()
	if err != nil {
		return nil, err
	}
	var dockerErr, processErr error
	if kind != Process {
		dockerErr = errNoDocker
		if openDocker != nil {
			var b Servers
			if b, dockerErr = openDocker(ctx, cfg); dockerErr == nil {
				return b, nil
			}
		}
		dockerErr = fmt.Errorf("docker: %w", dockerErr)
		// If the caller has canceled ctx, do not try the other backend.
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ensemble: %w", dockerErr)
		}
	}
	if kind != Docker {
		var b Servers
		if b, processErr = openProcessBackend(cfg); processErr == nil {
			return b, nil
		}
		processErr = fmt.Errorf("process: %w", processErr)
	}
	return nil, fmt.Errorf("ensemble: no backend can run ZooKeeper: %w\n%s",
		errors.Join(dockerErr, processErr), installHint)
}
