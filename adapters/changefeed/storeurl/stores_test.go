package storeurl_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
)

// stores contains every store that is a separate module.
var stores = []struct {
	directory string   // directory is the directory of the store's package, below adapters/changefeed.
	name      string   // name is the name of the database in documents.
	schemes   []string // schemes are the URL schemes of the store's addresses.
	driver    string   // driver is the beginning of the import paths of the store's driver.
}{
	{"kubernetes", "Kubernetes", []string{"kubernetes"}, "k8s.io/"},
	{"mongodb", "MongoDB", []string{"mongodb", "mongodb+srv"}, "go.mongodb.org/"},
	{"mysql", "MySQL and MariaDB", []string{"mysql", "mariadb"}, "github.com/go-sql-driver/mysql"},
	{"nats", "NATS", []string{"nats", "tls"}, "github.com/nats-io/"},
	{"postgres", "PostgreSQL", []string{"postgres", "postgresql"}, "github.com/jackc/pgx/"},
	{"redis", "Redis", []string{"redis", "rediss"}, "github.com/redis/go-redis/"},
	{"rethinkdb", "RethinkDB", []string{"rethinkdb"}, "gopkg.in/rethinkdb/"},
}

// tagOf returns the build tag that excludes the store in a directory from the build, or that adds it if it is not part of
// the default build.
func tagOf(directory string) string {
	if directory == "rethinkdb" {
		return directory
	}
	return "no_" + directory
}

// expectedListings returns the texts that must be in files which list stores, for one store. The keys are the paths of the
// files in the repository.
func expectedListings(directory, name, driver string) map[string][]string {
	tag := tagOf(directory)
	path := "adapters/changefeed/" + directory
	return map[string][]string{
		"go.work": {"\t./" + path + "\n", "leaderelection/" + path + " v"},
		"adapters/changefeed/storeurl/" + directory + ".go":   {"//go:build " + strings.Replace(tag, "no_", "!no_", 1) + "\n"},
		"adapters/changefeed/storeurl/storeurl.go":            {tag, "\n//\t" + directory + "://"},
		"adapters/changefeed/internal/fixture/fixture.go":     {`"` + driver + `"`},
		"adapters/changefeed/internal/fixture/safety_test.go": {`"` + name + `"`},
		"tools/repository/buildtags_test.go":                  {`"` + tag + `":`, `{"` + driver + `"}`},
		"cmd/elector/changefeed.go":                           {"// " + name + "\n"}, // the case of wrong credentials
		"docs/changefeed-stores.md":                           {"\n## " + name + "\n", "`" + path + "`"},
		"docs/elector.md":                                     {"| `" + tag + "` | ", "stores on " + name + " |"},
		"docs/modules.md":                                     {"| `" + path + "` | store |"},
		"Makefile":                                            {" " + tag},
		"README.md":                                           {name},
		"CHANGELOG.md":                                        {name},
	}
}

// TestStores_AreListedInAllFiles checks that each store is in the variable stores and in all files that
// list stores, and that these files do not contain the build tag of a store that does not exist.
func TestStores_AreListedInAllFiles(t *testing.T) {
	const root = "../../.."
	var directories, tags []string
	schemes := []string{"memory"}
	contents := map[string]string{}
	for _, s := range stores {
		directories, tags = append(directories, s.directory), append(tags, tagOf(s.directory))
		if s.directory != "rethinkdb" || hasRethinkDB {
			schemes = append(schemes, s.schemes...)
		}
		for file, texts := range expectedListings(s.directory, s.name, s.driver) {
			b, err := os.ReadFile(filepath.Join(root, file))
			assert.NoError(t, err, "%s has no such file", s.name)
			contents[file] = string(b)
			for _, text := range texts {
				assert.True(t, strings.Contains(string(b), text), "%s is missing in %s, which should contain %q", s.name, file, text)
			}
		}
	}
	assert.ElementsMatch(t, schemes, storeurl.Schemes(), "the schemes of the table and of storeurl")
	modules, err := filepath.Glob(root + "/adapters/changefeed/*/go.mod")
	require.NoError(t, err)
	for _, module := range modules {
		if d := filepath.Base(filepath.Dir(module)); d != "storeurl" {
			assert.Contains(t, directories, d, "the table lacks a store")
		}
	}
	backends := []string{"no_changefeed", "no_etcd", "no_raftlog"}
	tagPattern := regexp.MustCompile(`\bno_[a-z]+\b`)
	for _, file := range []string{"Makefile", "docs/elector.md", "tools/repository/buildtags_test.go", "adapters/changefeed/storeurl/storeurl.go"} {
		for _, tag := range tagPattern.FindAllString(contents[file], -1) {
			assert.Contains(t, slices.Concat(backends, tags), tag, "%s contains the build tag of an unknown store", file)
		}
	}
}
