package docker_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// TestStart_RejectsInvalidConfig checks that Start rejects an invalid configuration.
func TestStart_RejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]ensemble.Config{
		"negative": {Servers: -1},
		"too many": {Servers: 10},
		"tick":     {TickTime: time.Microsecond},
		"limit":    {SyncLimit: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ensemble.Start(t.Context(), cfg)
			require.Error(t, err)
		})
	}
}

// TestStart_RejectsUnknownBackendInVariable checks that Start rejects an unknown backend in the environment variable.
func TestStart_RejectsUnknownBackendInVariable(t *testing.T) {
	t.Setenv(ensemble.BackendVariable, "cloud")
	_, err := ensemble.Start(t.Context(), ensemble.Config{})
	require.ErrorContains(t, err, `"cloud"`)
}

// TestStart_AutoSelectsPreferredBackend checks that Auto selects the preferred backend among those that are
// installed, unless the environment variable names another backend.
func TestStart_AutoSelectsPreferredBackend(t *testing.T) {
	backends := availableBackends(t)
	t.Setenv(ensemble.BackendVariable, "")
	assert.Equal(t, backends[len(backends)-1], ensemble.StartServers(t, ensemble.Config{}).Backend())
	t.Setenv(ensemble.BackendVariable, backends[0].String())
	assert.Equal(t, backends[0], ensemble.StartServers(t, ensemble.Config{}).Backend())
}

// TestStart_NamesPackagesOfMissingBackend checks that the error of Start for a backend that is not installed names
// the packages to install.
func TestStart_NamesPackagesOfMissingBackend(t *testing.T) {
	t.Setenv(ensemble.BackendVariable, "process")
	t.Setenv("PATH", t.TempDir())
	_, err := ensemble.Start(t.Context(), ensemble.Config{})
	require.ErrorContains(t, err, "java")
	assert.ErrorContains(t, err, "apt-get install -y zookeeper openjdk-17-jre-headless")
}

// TestImage_NamesMatchScripts checks that the scripts use the same names of container images as this package.
func TestImage_NamesMatchScripts(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("image.go")
	require.NoError(t, err)
	constant := func(name string) string {
		_, rest, found := strings.Cut(string(source), name+" = \"")
		require.True(t, found, name)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	for script, names := range map[string][]string{
		"../image/build.sh": {"builtImage"},
		"../install.sh":     {"builtImage", "registryImage"},
	} {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		for _, name := range names {
			assert.Contains(t, string(text), "="+constant(name)+"\n", script)
		}
	}
}
