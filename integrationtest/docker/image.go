package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// registryImage is the image of the servers, if the Docker engine has this image or can pull it.
	registryImage = "zookeeper:3.9.4"
	// builtImage is the image of the servers if registryImage is not available.
	// integrationtest/image/build.sh builds it.
	builtImage = "leaderelection-zookeeper:3.8-1"

	buildScript = "integrationtest/image/build.sh"
)

const (
	// pullTimeout is how long a pull may make no progress. It is short, because on a machine without a registry often
	// only this timeout ends the pull.
	pullTimeout = 15 * time.Second
	// buildTimeout limits the build of an image, which takes one or two minutes.
	buildTimeout = 10 * time.Minute
)

// ImageVariable names the environment variable that selects the image of the servers, for
// example "zookeeper:3.5.10" to test with an older version. The engine must be able to pull it.
const ImageVariable = "LEADERELECTION_ZK_IMAGE"

// imageMu is held while a goroutine of this process determines the image. To exclude other processes, the build
// script uses its own lock.
var imageMu sync.Mutex

// findImage returns the name of an image that the Docker engine has. If necessary, it pulls or builds the image.
func findImage(ctx context.Context, docker client.APIClient) (string, error) {
	imageMu.Lock()
	defer imageMu.Unlock()
	if name := os.Getenv(ImageVariable); name != "" {
		if _, err := docker.ImageInspect(ctx, name); err == nil {
			return name, nil
		}
		return name, pullImage(ctx, docker, name)
	}
	for _, name := range []string{registryImage, builtImage} {
		if _, err := docker.ImageInspect(ctx, name); err == nil {
			return name, nil
		}
	}
	pullErr := pullImage(ctx, docker, registryImage)
	if pullErr == nil {
		return registryImage, nil
	}
	if buildErr := buildImage(ctx); buildErr != nil {
		return "", errors.Join(
			fmt.Errorf("pull image %s: %w", registryImage, pullErr),
			fmt.Errorf("build image %s: %w", builtImage, buildErr))
	}
	return builtImage, nil
}

func pullImage(ctx context.Context, docker client.APIClient, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(pullTimeout, cancel)
	defer watchdog.Stop()
	pull, err := docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer pull.Close()
	for message, err := range pull.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if message.Error != nil {
			return message.Error
		}
		watchdog.Reset(pullTimeout)
	}
	return nil
}

func buildImage(ctx context.Context) error {
	script, err := findScript()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", script)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = ensemble.StepTimeout
	killGroupOnCancel(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, testenv.LastLines(output.String()))
	}
	return nil
}

// findScript returns the path of the build script. It searches in the working directory and its parents, because
// tests run in the directory of their package.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		script := filepath.Join(dir, filepath.FromSlash(buildScript))
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("%s not found: the working directory is not in the repository", buildScript)
		}
		dir = parent
	}
}
