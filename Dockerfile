# docker build -t accelsim . && docker run --rm accelsim demo
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
COPY --from=build /wheels/*.whl /tmp/
RUN pip install --no-cache-dir /tmp/*.whl && rm /tmp/*.whl
RUN useradd --create-home user
USER user
WORKDIR /home/user
ENTRYPOINT ["accelsim"]
CMD ["--help"]
