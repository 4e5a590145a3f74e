package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxy is a directory that provides the modules of the repository to the go command. Each run of this program uses a
// different version, because the go command caches modules.
type proxy struct {
	repository *repository
	version    string
	created    time.Time
	dir        string             // the temporary directory of the module proxy
	env        []string           // the environment of the go command
	cache      string             // the module cache of the go command
	published  []gomodule.Version // the modules and versions that the directory contains
}

// withProxy calls the function do with a proxy that contains the modules of the working tree.
func withProxy(ctx context.Context, r *repository, do func(*proxy) error) error {
	p, err := newProxy(ctx, r)
	if err != nil {
		return err
	}
	defer p.close()
	return do(p)
}

func newProxy(ctx context.Context, r *repository) (*proxy, error) {
	p := &proxy{repository: r, created: time.Now()}
	p.version = uniqueVersion(p.created)
	out, err := runCommand(ctx, r.root, nil, "go", "env", "-json", "GOPROXY", "GOMODCACHE", "GOFLAGS")
	if err != nil {
		return nil, err
	}
	var env struct{ GOPROXY, GOMODCACHE, GOFLAGS string }
	if err := json.Unmarshal([]byte(out), &env); err != nil {
		return nil, err
	}
	p.cache = env.GOMODCACHE
	if p.dir, err = os.MkdirTemp("", "modules"); err != nil {
		return nil, err
	}
	ownModules := filepath.Dir(r.corePath()) + "/*"
	p.env = []string{
		"GOWORK=off", "GOPROXY=file://" + filepath.ToSlash(p.dir) + "/proxy," + env.GOPROXY, "GONOSUMDB=" + ownModules,
		"GOFLAGS=" + strings.TrimSpace(env.GOFLAGS+" -mod=mod"), "GOTOOLCHAIN=local",
	}
	if err := p.publish(r, p.version); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// uniqueVersion returns a version that no other run of this program uses, and that is older than the versions of
// later runs.
func uniqueVersion(t time.Time) string {
	var unique [6]byte
	_, _ = rand.Read(unique[:]) // rand.Read never fails
	return gomodule.PseudoVersion("v0", "", t, hex.EncodeToString(unique[:]))
}

// close removes the directory of the proxy, and removes the modules from the cache of the go command.
func (p *proxy) close() {
	for _, m := range p.published {
		dir := filepath.Join(p.cache, m.Path+"@"+m.Version)
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(name, 0o755) // the go command makes the files of the cache read-only
			}
			return nil
		})
		_ = os.RemoveAll(dir)
		files, _ := filepath.Glob(filepath.Join(p.cache, "cache", "download", m.Path, "@v", m.Version+".*"))
		for _, name := range files {
			_ = os.Remove(name)
		}
	}
	_ = os.RemoveAll(p.dir)
}

// publish adds the modules of a repository to the proxy. The modules require each other with the given version.
func (p *proxy) publish(r *repository, version string) error {
	for _, m := range r.modules {
		if err := p.addModule(r, m, version); err != nil {
			return fmt.Errorf("add module %s to the proxy: %w", m.dir, err)
		}
	}
	return nil
}

// addModule writes the files of a module to the directory of the proxy.
func (p *proxy) addModule(r *repository, m *module, version string) error {
	goMod, err := r.goMod(m, version)
	if err != nil {
		return err
	}
	source := filepath.Join(r.root, m.dir)
	checked, err := zip.CheckDir(source)
	if err != nil {
		return err
	}
	var files []zip.File
	for _, disk := range checked.Valid {
		name, err := filepath.Rel(source, disk)
		if err != nil {
			return err
		}
		f := sourceFile{name: filepath.ToSlash(name), disk: disk}
		if name == "go.mod" {
			f.content = goMod
		}
		files = append(files, f)
	}
	published := gomodule.Version{Path: m.path, Version: version}
	var packed bytes.Buffer
	if err := zip.Create(&packed, published, files); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": p.created.UTC()})
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "proxy", m.path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for suffix, content := range map[string][]byte{".info": info, ".mod": goMod, ".zip": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, version+suffix), content, 0o644); err != nil {
			return err
		}
	}
	p.published = append(p.published, published)
	return nil
}

// sourceFile is a file of a module. If content is nil, the file disk has the content.
type sourceFile struct {
	name, disk string
	content    []byte
}

func (f sourceFile) Path() string { return f.name }

func (f sourceFile) Lstat() (os.FileInfo, error) {
	info, err := os.Lstat(f.disk)
	if err != nil || f.content == nil {
		return info, err
	}
	return sizedInfo{info, int64(len(f.content))}, nil
}

func (f sourceFile) Open() (io.ReadCloser, error) {
	if f.content != nil {
		return io.NopCloser(bytes.NewReader(f.content)), nil
	}
	return os.Open(f.disk)
}

// sizedInfo describes a file whose content replaces the content on the disk, and therefore has another size.
type sizedInfo struct {
	os.FileInfo
	size int64
}

func (i sizedInfo) Size() int64 { return i.size }
