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

func TestConfigThatCannotWork(t *testing.T) {
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

func TestVariableThatMakesNoSense(t *testing.T) {
	t.Setenv(ensemble.BackendVariable, "cloud")
	_, err := ensemble.Start(t.Context(), ensemble.Config{})
	require.ErrorContains(t, err, `"cloud"`)
}

// TestAuto shows what is preferred, and that the environment can say otherwise.
func TestAuto(t *testing.T) {
	backends := availableBackends(t)
	t.Setenv(ensemble.BackendVariable, "")
	assert.Equal(t, backends[len(backends)-1], start(t, ensemble.Config{}).Backend())
	t.Setenv(ensemble.BackendVariable, backends[0].String())
	assert.Equal(t, backends[0], start(t, ensemble.Config{}).Backend())
}

func TestErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv(ensemble.BackendVariable, "process")
	t.Setenv("PATH", t.TempDir())
	_, err := ensemble.Start(t.Context(), ensemble.Config{})
	require.ErrorContains(t, err, "java")
	assert.ErrorContains(t, err, "apt-get install -y zookeeper openjdk-17-jre-headless")
}

// TestScriptsNameTheSameImages keeps the names in the scripts and in this
// package from drifting apart.
func TestScriptsNameTheSameImages(t *testing.T) {
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
