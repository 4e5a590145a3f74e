package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is an edit that breaks a rule of the library, and the tests that must fail because of that.
type mutant struct {
	name   string // the unique name: an area and a number, such as line/W6
	breaks string // the rule that the edit breaks, or its consequence, in a few words
	file   string // the path of the file to edit, relative to the root of the repository
	// edits are applied in this order. The old text of each edit occurs exactly once in the file.
	edits []edit
	// tests are the arguments of go test: packages, and -run with the tests that must fail. These tests should take
	// no more than a few seconds.
	tests string
	// equivalent is the reason why the edit changes no behaviour that a client can observe. Such a mutant stays in
	// the table so that no one examines it again, but it is not run.
	equivalent string
}

// edit replaces the text old by the text new.
type edit struct{ old, new string }

// table returns the mutants of all files mutants_*.go.
func table() []mutant {
	return slices.Concat(sessionMutants, rejectionMutants, accessMutants, zkdialMutants, watchMutants, grantMutants, electionMutants,
		contenderMutants, contenderEndMutants, queueMutants, recipeMutants, lockMutants, workQueueMutants, cacheMutants, counterMutants, groupMutants, shardMutants, ephemeralMutants,
		changefeedMutants, mysqlMutants, etcdMutants, kubernetesMutants,
		raftlogMutants, raftlogElectionMutants, raftlogFileMutants, raftlogClientMutants, raftlogPeerMutants, roleMutants, commandMutants, transportMutants, migrationMutants)
}

// mutate reads the file of the mutant, and returns its text after the edits. root is the root of the repository.
func (m *mutant) mutate(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	text := string(data)
	for _, e := range m.edits {
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s: the text to replace occurs %d times in %s, not once: %q", m.name, n, m.file, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return []byte(text), nil
}
