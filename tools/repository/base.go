package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// baseCommit is the hash of the commit whose modules are built with the core module of the working
// tree: it is the commit of the last release or, before the first one, the last commit that broke
// modules on purpose.
//
//go:embed base
var baseCommit string

// checkBase builds the modules of the base commit, in the versions that a program has required since then, with the
// core module of the working tree. A program gets this combination if it upgrades only the core module.
func (p *proxy) checkBase(ctx context.Context) error {
	commit := strings.TrimSpace(baseCommit)
	base, err := extractCommit(ctx, p.repository, commit, filepath.Join(p.dir, "base"))
	if err != nil {
		return err
	}
	version := uniqueVersion(p.created.Add(-time.Hour)) // a version that is older than p.version
	if err := p.publish(base, version); err != nil {
		return err
	}
	for _, m := range base.modules {
		if m.dir == "." || m.isInternal() {
			continue
		}
		if err := p.buildOldModule(ctx, m, version); err != nil {
			return fmt.Errorf("%s of commit %s does not build with the core module of the working tree: %w", m.dir, commit, err)
		}
		fmt.Printf("%-32s of commit %.8s builds with this core module\n", m.dir, commit)
	}
	return nil
}

// buildOldModule builds a version of a module in a program that requires the core module of the working tree.
func (p *proxy) buildOldModule(ctx context.Context, m *module, version string) error {
	dir, err := p.newProgram("module program\n")
	if err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "get", m.path+"@"+version, p.repository.corePath()+"@"+p.version); err != nil {
		return err
	}
	_, err = runCommand(ctx, dir, p.env, "go", "build", m.path+"/...")
	return err
}

// extractCommit writes the files of a commit to a new directory, and reads the go.work of that commit.
func extractCommit(ctx context.Context, r *repository, commit, dir string) (*repository, error) {
	if _, err := runCommand(ctx, r.root, nil, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		return nil, fmt.Errorf("commit %[1]s, which tools/repository/base names, is not in this clone: run git fetch --depth 1 origin %[1]s (%[2]w)", commit, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	archive := dir + ".tar"
	if _, err := runCommand(ctx, r.root, nil, "git", "archive", "--output", archive, commit); err != nil {
		return nil, err
	}
	if _, err := runCommand(ctx, dir, nil, "tar", "-xf", archive); err != nil {
		return nil, err
	}
	return readRepository(dir)
}
