package safetytable

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

const document = `# Stores
## One
Text | with a bar.

| other | table |
| --- | --- |
| a | b |

| deployment | at most one leader? | ` + "`Start`" + ` |
| --- | --- | --- |
| one server, ` + "`fsync on`" + ` | yes, always | accepted |
| **Replicas** | **no**: none | refused: ` + "`failover`" + ` |
## Two
nothing
`

// TestRows fails if a row is lost, or a malformed row is accepted.
func TestRows(t *testing.T) {
	rows, err := Rows(document, "One")
	require.NoError(t, err)
	require.Equal(t, []Row{
		{"one server, fsync on", "yes, always", "accepted"},
		{"Replicas", "no: none", "refused: failover"},
	}, rows)
	_, err = Rows(document, "Two")
	require.Error(t, err)
	_, err = Rows(document+"| deployment | at most one leader? | `Start` |\n| a | b |\n", "Two")
	require.ErrorContains(t, err, "2 cells")
	require.Equal(t, []string{"One"}, Sections(document))
}

// TestCheckConsistency fails if an unsafe deployment can be documented as accepted.
func TestCheckConsistency(t *testing.T) {
	for row, consistent := range map[Row]bool{
		{"", "yes", "accepted"}:              true,
		{"", "no: replicas", "accepted"}:     false,
		{"", "no", "refused: failover"}:      true,
		{"", "yes, mostly", "refused: fire"}: false,
		{"", "no", "not checked"}:            true,
		{"", "no", "refused"}:                true,
		{"", "no", ""}:                       false,
	} {
		require.Equal(t, consistent, checkConsistency(row) == nil, row)
	}
}

// TestDocument_Stores fails if the table of a store is missing or cannot be parsed.
func TestDocument_Stores(t *testing.T) {
	require.Equal(t, []string{"PostgreSQL", "Redis", "NATS", "RethinkDB", "MongoDB"}, Sections(Document(t)))
}

// TestDocument_Risks fails if the list of risks does not name the stores whose tables contain them.
func TestDocument_Risks(t *testing.T) {
	document := Document(t)
	for _, risk := range changefeed.Risks() {
		var stores []string
		for _, section := range Sections(document) {
			rows, err := Rows(document, section)
			require.NoError(t, err)
			if slices.ContainsFunc(rows, func(r Row) bool { return r.Start == "refused: "+string(risk) }) {
				stores = append(stores, section)
			}
		}
		line := regexp.MustCompile("(?m)^\\| `" + string(risk) + "` \\|.*\\| (.*) \\|$").FindStringSubmatch(document)
		require.NotNil(t, line, "the document does not explain the risk %s", risk)
		require.ElementsMatch(t, stores, strings.Split(line[1], ", "), "the stores with the risk %s", risk)
	}
}
