# SPDX-License-Identifier: Apache-2.0

# Go crosses to the target faster than an emulator of the target would build.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
# With .git, which is where the binary's version comes from.
COPY . .
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    GOCACHE=/go/cache CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -pgo=cmd/pillion/cpu.pprof -ldflags='-s -w' -o /pillion ./cmd/pillion

# Nothing but the program: it trusts the cluster's CA and no public one. 15 MB to pull,
# 45 MB unpacked; e2e/shipped tests it.
FROM scratch
COPY --from=build /pillion /pillion
USER 65532:65532
ENTRYPOINT ["/pillion"]
