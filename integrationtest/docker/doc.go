// Package docker runs the servers of package internal/testenv/ensemble in Docker containers. A program that imports
// package docker can use [ensemble.Docker], which [ensemble.Auto] then prefers. The package is separate because it
// requires many modules.
package docker

import "github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"

func init() { ensemble.RegisterDocker(openServers) }
